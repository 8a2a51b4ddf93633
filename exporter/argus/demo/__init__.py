"""``argus demo``: a real job with a real fault, from the training loop to the notification."""
