"""What every report page is made of: safe markup, figures in words, axes, charts, and a frame around them."""
