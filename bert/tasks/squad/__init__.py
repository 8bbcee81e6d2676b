"""Questions about paragraphs (paper, sections 4.2 and 4.3)."""
