"""The Helm chart, by Helm itself, which is built from its Go module (`make chart-test`)."""
