"""Small tokenizers of the kinds that models have."""

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from models.text.byte_tokenizer import byte_tokenizer

WORDS = ["▁", "▁a", "a", "é", "▁日本", "。", "\N{REPLACEMENT CHARACTER}", "\n", "▁foo", "foo"]
BYTE = 3  # id of <0x00> in the byte-fallback vocabulary


def id_of(tokenizer: Tokenizer, piece: str) -> int:
    token_id = tokenizer.token_to_id(piece)
    assert token_id is not None
    return token_id


def byte_fallback() -> Tokenizer:
    """As SentencePiece models are: words with a dummy space in front, bytes for the rest."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS]
    scores = [(piece, -1.0 if piece in WORDS else -10.0) for piece in pieces]
    tokenizer = Tokenizer(models.Unigram(scores, unk_id=0, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def metaspace() -> Tokenizer:
    vocabulary = {piece: i for i, piece in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="▁"))
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def word_pieces() -> Tokenizer:
    vocabulary = {
        piece: i for i, piece in enumerate(["[UNK]", "un", "##aff", "##able", ".", "n't"])
    }
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def plain_words() -> Tokenizer:
    """Without a decoder: the words joined by spaces."""
    return Tokenizer(models.WordLevel({"one": 0, "two": 1, "three": 2}, unk_token="one"))


def nested_byte_level() -> Tokenizer:
    """Bytes, and a decoder that goes on after them."""
    tokenizer = byte_tokenizer()
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip("_", 1, 0)])
    return tokenizer


def bytes_with_added_tokens() -> Tokenizer:
    """Added tokens of which one spells bytes and others do not."""
    tokenizer = byte_tokenizer()
    added = ["日本", "a b", "Ã©x", "<tool>"]
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in added])
    return tokenizer
