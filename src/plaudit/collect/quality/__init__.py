"""How far labels can be trusted: agreement, skill, biases and drift of people, and the consensus as a chance.

Computed beside the server and not in it: `result` and `cache` are all that a server loads of this folder.
"""
