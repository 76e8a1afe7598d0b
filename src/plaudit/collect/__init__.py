"""Labels by people: a store, its tasks, the pages that ask, the rows that come out."""
