"""What tests of several modules share of `layering`."""

SCRIPTS = {
    *("convert_checkpoint", "create_pretraining_data", "create_vocab", "create_word_vectors"),
    *("extend_vocab", "extract_features", "fill_mask", "neighbours", "predict", "run_classifier"),
    *("run_classifier_with_tfhub", "run_ner", "run_pretraining", "run_squad", "run_swag"),
    *("inspect_text", "join_shards", "reproduce_paper", "serve", "split_sentences"),
}
