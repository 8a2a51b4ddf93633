"""The exporter's web server: listening, TLS and passwords, pages."""
