"""Models answer: how they are to be sampled, and the sampler that does it on this machine."""
