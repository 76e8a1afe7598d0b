"""The proof lab: losses measured against their exact optimum in a language that can be written out."""
