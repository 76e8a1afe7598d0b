"""Before a run: is what will be trained, scored and sampled what its user believes it is?"""
