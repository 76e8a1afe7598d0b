"""Charts as SVG of our own: axes, lines, bars, intervals and flows; what no chart draws is a template's."""
