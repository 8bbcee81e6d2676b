"""BERT on TensorFlow 2 and Keras 3: the rooms below the scripts, floor by floor."""
