"""What texts are made of: characters, added tokens, and what a tokenizer remembers of them."""
