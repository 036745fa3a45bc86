"""The scripts of tools/, which import nothing of edl, and what judges them."""
