"""Translation validation: the text that runs, read back and proved equal to the formula."""
