"""`python -m edl.pod k8s_tools ...` and `python -m edl.pod paddle_k8s ...`, for images without console scripts."""

from edl.pod.roles import main

main()
