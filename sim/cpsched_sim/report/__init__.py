"""Pictures of studies; the one door to matplotlib (extra `report`)."""
