"""TLS at the broker's listeners: certificates, contexts, and the layer between socket and connection."""
