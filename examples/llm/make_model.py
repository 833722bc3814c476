"""Makes a small language model with random weights, its tokenizer, and a data set of sentences.

python make_model.py FOLDER
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

COLOURS = ("red", "green", "blue", "black", "white", "grey")
THINGS = ("house", "car", "tree", "boat", "stone", "bird")
PLACES = ("road", "hill", "river", "field")


def examples() -> list[dict[str, str]]:
    """Return questions with their answers."""
    return [
        {
            "input": f"where is the {colour} {thing} ?",
            "output": f"the {colour} {thing} is near the {PLACES[(at + more) % len(PLACES)]} .",
        }
        for at, colour in enumerate(COLOURS)
        for more, thing in enumerate(THINGS)
    ]


def main(folder: Path) -> None:
    """Write FOLDER/dataset/train.json and FOLDER/model."""
    set_seed(0)
    rows = examples() * 4
    (folder / "dataset").mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder / "dataset" / "train.json").write_text(lines)

    words = sorted({word for row in rows for text in row.values() for word in text.split()})
    names = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}
    vocabulary = names | {word: len(names) + at for at, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    )
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(vocabulary),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
    )
    model.save_pretrained(folder / "model")
    fast.save_pretrained(folder / "model")
    print(f"{len(rows)} examples, {model.num_parameters()} parameters in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
