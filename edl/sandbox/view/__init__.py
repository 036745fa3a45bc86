"""What a person sees of a sandbox: `picture.py` says what there is to see, `live.py` shows it."""
