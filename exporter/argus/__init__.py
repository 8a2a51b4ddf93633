"""ARGUS: names the slow GPU, link or host of a synchronous training job."""
