"""Studies: grids of trials that are planned, trained, kept and chosen from."""
