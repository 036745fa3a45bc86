"""Each call of the controller to the API server, made to go wrong once in each way that a call can.

`table` has the calls, the ways and the cases; `make api-faults` tries all of them and prints the table of results,
`make test` tries a sample.
"""
