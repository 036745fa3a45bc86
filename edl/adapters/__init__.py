"""The only place for the libraries that touch the world: Kubernetes, HTTP, metrics, files."""
