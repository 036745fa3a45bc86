"""An example to copy: a logistic model on parameter servers, trained by trainers that come and go."""
