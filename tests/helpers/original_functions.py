"""What tests of several modules share of the functions of the original's `modeling`."""

import keras

import modeling


def model_of_functions(config, tensors, scope=keras.name_scope):
    """Returns what the original's BertModel does, written with the functions as its users do.

    Args:
      config: The configuration.
      tensors: Ids, mask and types of tokens.
      scope: What names the variables: of Keras, or in a graph of TensorFlow 1.
    """
    input_ids, input_mask, token_type_ids = tensors
    with scope("bert"):
        with scope("embeddings"):
            words, table = modeling.embedding_lookup(
                input_ids, config.vocab_size, config.hidden_size
            )
            embedded = modeling.embedding_postprocessor(
                words,
                use_token_type=True,
                token_type_ids=token_type_ids,
                token_type_vocab_size=config.type_vocab_size,
                max_position_embeddings=config.max_position_embeddings,
                dropout_prob=config.hidden_dropout_prob,
            )
        with scope("encoder"):
            layers = modeling.transformer_model(
                embedded,
                modeling.create_attention_mask_from_input_mask(input_ids, input_mask),
                hidden_size=config.hidden_size,
                num_hidden_layers=config.num_hidden_layers,
                num_attention_heads=config.num_attention_heads,
                intermediate_size=config.intermediate_size,
                hidden_dropout_prob=config.hidden_dropout_prob,
                attention_probs_dropout_prob=config.attention_probs_dropout_prob,
                do_return_all_layers=True,
            )
    return [table, embedded, *layers]
