"""The pages as HTML and SVG, made from the model that a viewer may see."""
