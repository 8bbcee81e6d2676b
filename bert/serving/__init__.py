"""A model behind HTTP, in the form of TensorFlow Serving's REST, with a page to type into."""
