"""What a plan reads of the pods. The next plan reads only those again that have changed."""
