"""The Workloads of Kueue that edl makes: their objects, and the requests about them."""
