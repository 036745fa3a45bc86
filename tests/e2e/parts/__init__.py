"""One part of edl alone against a real API server: writer, cache, CRD, rights and launcher."""
