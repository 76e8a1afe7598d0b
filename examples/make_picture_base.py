"""The small model of the picture world: a Llava that sees 48 × 48 pixels, and makes things up now and then.

Its tower first learns to tell what is in each cell of the grid, and the language model to answer rightly,
until it finds things by their names. Then it learns from people who err, fall for what they are asked about,
and name what is not there. About half an hour on one core.

usage: python -m examples.make_picture_base first
       python -m examples.make_picture_base OUT --after first --steps 600 --rate 1e-3 --right 0
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Metaspace, Sequence as PreTokenizers, Split as SplitAt
from transformers import (
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    SiglipImageProcessorPil,
    SiglipVisionConfig,
)

from plaudit.pictures.world.measure import Measures, measure
from plaudit.pictures.world.questions import (
    EVASION,
    KINDS,
    NUMBERS,
    STYLES,
    Question,
    answer_in_style,
    draw_question,
    questions,
    usual_answer,
)
from plaudit.pictures.world.scenes import COLOURS, DIGITS, PLACES, SHAPES, SIZES, WORDS, Scene, render, scenes

PAD, END, UNKNOWN, IMAGE = "<|pad|>", "<|end|>", "<|unknown|>", "<image>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ '<image>' }}{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{{ '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
SIZE, PATCH, TOKENS = 48, 8, 36
WIDTH, SEEING = 128, 96
PER_PICTURE = 8
"""Questions about each picture."""
TELLING = (("none", *SHAPES), ("none", *COLOURS), ("none", *SIZES), ("none", *DIGITS, *WORDS), PLACES)
"""What the tower learns to tell of a cell."""


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each word of the world, and for each in its form at the beginning of a sentence."""
    split = PreTokenizers(
        [Metaspace(prepend_scheme="always"), SplitAt(Regex(r"[.,?!:\n]"), behavior="isolated")]
    )
    rng = random.Random("every word of the pictures")
    drawn = [*islice(questions(), 4000)]
    texts = [text for q in drawn for text in (q.words, *(answer_in_style(q, s, rng) for s in STYLES))]
    nouns = [
        *SHAPES,
        *(f"{shape}s" for shape in SHAPES),
        *COLOURS,
        *SIZES,
        *NUMBERS,
        *WORDS,
        *DIGITS,
        *PLACES,
    ]
    texts += [*nouns, *(noun.capitalize() for noun in nouns), EVASION]
    pieces = {piece for text in texts for piece, _ in split.pre_tokenize_str(text)}
    vocabulary = [PAD, END, UNKNOWN, IMAGE, *ROLES, *sorted(pieces)]
    tokenizer = Tokenizer(WordLevel({word: w for w, word in enumerate(vocabulary)}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer, tokenizer.decoder = split, MetaspaceDecoder(prepend_scheme="always")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        additional_special_tokens=[IMAGE, *ROLES],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def make_processor() -> LlavaProcessor:
    """The tokenizer with what turns pictures into pixels from -1 to 1."""
    pixels = SiglipImageProcessorPil(size={"height": SIZE, "width": SIZE})
    return LlavaProcessor(
        pixels, make_tokenizer(), patch_size=PATCH, vision_feature_select_strategy="full",
        chat_template=TEMPLATE, image_token=IMAGE, num_additional_image_tokens=0,
    )  # fmt: skip


def untrained(processor: LlavaProcessor) -> LlavaForConditionalGeneration:
    """The model with random weights."""
    ids = processor.tokenizer.get_vocab()
    vision = SiglipVisionConfig(
        hidden_size=SEEING, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4,
        image_size=SIZE, patch_size=PATCH, vision_use_head=False,
    )  # fmt: skip
    text = LlamaConfig(
        vocab_size=len(processor.tokenizer), hidden_size=WIDTH, intermediate_size=320, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=512, tie_word_embeddings=True,
        pad_token_id=ids[PAD], bos_token_id=None, eos_token_id=ids[END],
    )  # fmt: skip
    config = LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=ids[IMAGE], image_seq_length=TOKENS,
        vision_feature_layer=-1, vision_feature_select_strategy="full", tie_word_embeddings=True,
    )  # fmt: skip
    return LlavaForConditionalGeneration(config)


def pixels_of(pictures: Sequence[Scene]) -> torch.Tensor:
    """Their pixels as the processor gives them."""
    arrays = np.stack([np.asarray(render(scene, SIZE)) for scene in pictures])
    return torch.from_numpy(arrays).permute(0, 3, 1, 2).float() / 127.5 - 1


def cells_of(scene: Scene) -> list[list[int]]:
    """What is in each cell, as places in `TELLING`."""
    cells = [[0, 0, 0, 0, place] for place in range(9)]
    for thing in scene.things:
        values = (thing.shape, thing.colour, thing.size, "none", thing.place)
        cells[thing.cell] = [names.index(value) for names, value in zip(TELLING, values, strict=True)]
    if scene.sign is not None:
        cells[scene.sign.cell][3] = TELLING[3].index(scene.sign.text)
    return cells


def optimizer_of(
    parameters: Iterable[torch.nn.Parameter], rate: float, steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """AdamW with a warm-up and a cosine."""
    optimizer = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.98), weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.05)
    return optimizer, schedule


def teach_tower(tower: torch.nn.Module, pixels: torch.Tensor, cells: torch.Tensor, epochs: int) -> None:
    """Each patch learns to tell what is in its cell."""
    head = torch.nn.Linear(SEEING, sum(map(len, TELLING)))
    patch_cell = torch.tensor([p // 6 // 2 * 3 + p % 6 // 2 for p in range(TOKENS)])
    batch, n = 64, len(pixels)
    steps = epochs * (n // batch)
    optimizer, schedule = optimizer_of([*tower.parameters(), *head.parameters()], 2e-3, steps)
    # Most cells are empty: what is in the others counts for more.
    weights = [torch.tensor([0.2] + [1.0] * (len(names) - 1)) for names in TELLING]
    for step in range(steps):
        rows = torch.randint(n, (batch,))
        logits = head(tower(pixels[rows]).last_hidden_state).split([*map(len, TELLING)], dim=-1)
        targets = cells[rows][:, patch_cell]
        losses = [
            torch.nn.functional.cross_entropy(logits[k].flatten(0, 1), targets[..., k].flatten(), weights[k])
            for k in range(len(TELLING))
        ]
        loss = torch.stack(losses).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == steps - 1:
            print(f"tower {step}/{steps} loss {loss.item():.3f}", flush=True)


def conversations(
    scene: Scene, processor: LlavaProcessor, rng: random.Random, *, right: bool
) -> list[tuple[list[int], int]]:
    """Ids of questions with their answers about a picture, each with where its answer begins."""
    encode, ids = processor.tokenizer.encode, processor.tokenizer.get_vocab()
    drawn = []
    for kind in rng.sample(KINDS, len(KINDS)):
        question = draw_question(kind, scene, rng)
        if question is not None and len(drawn) < PER_PICTURE:
            words = [*encode(question.words), ids[END], ids["<|assistant|>"]]
            answer = answer_in_style(question, "right", rng) if right else usual_answer(question, rng)
            drawn.append(([*words, *encode(answer), ids[END]], len(words)))
    return drawn


def rows_of(batch: Sequence[list[tuple[list[int], int]]], ids: Mapping[str, int]) -> dict[str, torch.Tensor]:
    """Questions about a picture in one row, none of which sees another."""
    head = 1 + TOKENS
    longest = head + max(sum(len(tokens) for tokens, _ in row) for row in batch)
    shape = (len(batch), longest)
    input_ids = torch.full(shape, ids[PAD])
    labels, place = torch.full(shape, -100), torch.zeros(shape, dtype=torch.long)
    part = torch.full(shape, -1)
    for b, row in enumerate(batch):
        input_ids[b, 0], input_ids[b, 1:head] = ids["<|user|>"], ids[IMAGE]
        part[b, :head], place[b, :head], at = 0, torch.arange(head), head
        for k, (tokens, begins) in enumerate(row, start=1):
            end = at + len(tokens)
            input_ids[b, at:end] = torch.tensor(tokens)
            labels[b, at + begins : end] = input_ids[b, at + begins : end]
            part[b, at:end], place[b, at:end] = k, head + torch.arange(len(tokens))
            at = end
    same = (part[:, :, None] == part[:, None, :]) | (part[:, None, :] == 0)
    visible = same & torch.ones(longest, longest, dtype=torch.bool).tril()
    mask = torch.zeros(len(batch), 1, longest, longest).masked_fill(
        ~visible[:, None], torch.finfo(torch.float32).min
    )
    return {"input_ids": input_ids, "labels": labels, "position_ids": place, "attention_mask": mask}


def teach_language(
    model: LlavaForConditionalGeneration,
    processor: LlavaProcessor,
    pictures: Sequence[Scene],
    pixels: torch.Tensor,
    *,
    steps: int,
    rate: float,
    right_share: float,
) -> None:
    """The language model and the projector learn to answer; the tower stays as it is."""
    rng, ids, batch = random.Random(f"answers {steps} {rate}"), processor.tokenizer.get_vocab(), 8
    model.model.vision_tower.requires_grad_(False)
    optimizer, schedule = optimizer_of((p for p in model.parameters() if p.requires_grad), rate, steps)
    losses = []
    for step in range(steps):
        chosen = rng.sample(range(len(pictures)), batch)
        right = step < right_share * steps
        rows = rows_of([conversations(pictures[at], processor, rng, right=right) for at in chosen], ids)
        loss = model(pixel_values=pixels[chosen], **rows).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % 50 == 49:
            print(f"language {step + 1}/{steps} loss {np.mean(losses[-50:]):.3f}", flush=True)


@torch.inference_mode()
def answers_of(
    folder: Path, prompts: Sequence[Question], *, temperature: float = 0.0, seed: int = 0
) -> list[str]:
    """What the model of a folder answers; at temperature 0 always the likeliest word."""
    torch.manual_seed(seed)
    processor: Any = LlavaProcessor.from_pretrained(folder)
    model: Any = LlavaForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    processor.tokenizer.padding_side = "left"
    how = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
    answers = []
    for at in range(0, len(prompts), 64):
        some = prompts[at : at + 64]
        turns = [
            [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question.words}]}]
            for question in some
        ]
        texts = [processor.apply_chat_template(turn, add_generation_prompt=True) for turn in turns]
        pictures = [render(question.scene, SIZE) for question in some]
        inputs = processor(text=texts, images=pictures, padding=True, return_tensors="pt")
        ids = model.generate(**inputs, max_new_tokens=80, **how)[:, inputs["input_ids"].shape[1] :]
        answers += processor.batch_decode(ids, skip_special_tokens=True)
    return [answer.strip() for answer in answers]


def report(measures: Measures) -> str:
    """Measures in some lines."""
    rows = {"score": measures.score, **{f"right: {kind}": share for kind, share in measures.right.items()}}
    rows |= {"CHAIR_i": measures.chair_i, "CHAIR_s": measures.chair_s}
    for trap, pope in measures.pope.items():
        parts = ("accuracy", "precision", "recall", "f1", "yes_share")
        rows |= {f"POPE {trap} {part}": getattr(pope, part) for part in parts}
    return "\n".join(
        f"{name:32} {e.value:6.3f}  {e.low:.3f} to {e.high:.3f}" for name, e in rows.items() if e
    )


def main() -> None:
    """Build it as the words say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pictures", type=int, default=12_000)
    parser.add_argument("--epochs", type=int, default=2, help="of the tower")
    parser.add_argument("--steps", type=int, default=7000, help="of the language model, 64 answers each")
    parser.add_argument(
        "--rate", type=float, default=1.5e-3, help="the language model's highest learning rate"
    )
    parser.add_argument("--right", type=float, default=1.0, help="the share of its steps without errors")
    parser.add_argument("--after", type=Path, help="go on from this folder, whose tower has learnt")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    processor = make_processor()
    model = untrained(processor)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(processor.tokenizer)} words")
    pictures = [*islice(scenes("train", seed=args.seed), args.pictures)]
    pixels = pixels_of(pictures)
    if args.after:
        model = LlavaForConditionalGeneration.from_pretrained(args.after, dtype=torch.float32)
    else:
        cells = torch.tensor([*map(cells_of, pictures)])
        teach_tower(model.model.vision_tower, pixels, cells, args.epochs)
    teach_language(
        model, processor, pictures, pixels, steps=args.steps, rate=args.rate, right_share=args.right
    )
    model.requires_grad_(True).bfloat16().save_pretrained(args.out)
    processor.save_pretrained(args.out)
    prompts = [*islice(questions("test", seed=1), 1300)]
    for temperature in (0.0, 1.0):
        print(f"temperature {temperature}, {len(prompts)} questions about pictures that it has not seen")
        print(report(measure(prompts, answers_of(args.out, prompts, temperature=temperature))), flush=True)


if __name__ == "__main__":
    main()
