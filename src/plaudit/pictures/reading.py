"""Pictures as a model is shown them, through the processor of its own folder.

A processor says two things of a picture: the text that stands for it between the words, as many tokens as
the tower makes features, and the numbers that the tower is handed. Numbers are made again for each batch
that needs them, so that rows of pictures cost no memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plaudit.data.records import Message, Part, Text, pictures
from plaudit.errors import UserError
from plaudit.files.model_folder import check_model_folder
from plaudit.files.pictures import open_picture, picture_id
from plaudit.models.adapters import LOADING_FAULTS, first_lines
from plaudit.models.load import loading
from plaudit.tokens.batch import POSITIONS, Extra, Extras, LazyExtra, digest
from plaudit.tokens.tokenizer import TokenizerInfo, quiet_library

_WITHIN_ROW = frozenset({"idefics2", "idefics3", "smolvlm"})
"""Families whose pictures are those of one row, ``[1, I, …]``."""
_OF_TOKENS = frozenset({"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"})
"""What a processor says of tokens, which are made here."""
_CACHED = 256
"""How many pictures' numbers stay at hand."""


@dataclass(frozen=True, slots=True)
class Processed:
    """One picture, as a model takes it."""

    place: str
    """The text that stands for it."""
    tensors: Mapping[str, Tensor]
    """What the tower is handed, by the name of the model's argument: ``[items, …]``."""


class PictureReader:
    """Reads the pictures of turns for the model of a folder: an `ExtrasReader`."""

    def __init__(self, folder: Path, info: TokenizerInfo) -> None:
        self.folder, self.info = folder, info
        self.config = config = check_model_folder(folder)
        self.family = str(config.get("model_type"))
        if self.family == "paligemma":
            raise UserError(f"{folder}: PaliGemma reads prompts both ways and has no turns: not trained here")
        language = config.get("text_config") or config
        rotation = language.get("rope_parameters") or language.get("rope_scaling") or {}
        self.counts_rows = "mrope_section" in rotation
        """Whether it counts rows and columns of pictures."""
        # Gemma's template writes the token that begins a picture, others the one that is repeated.
        names = ("boi_token_index", "image_token_id", "image_token_index")
        numbers = [config[name] for name in names if isinstance(config.get(name), int)]
        if not numbers:
            raise UserError(f"{folder / 'config.json'}: it names no token that stands for a picture")
        number, self.token = numbers[0], numbers[-1]
        self.mark = str(info.tokenizer.convert_ids_to_tokens(number))
        """What a chat template writes for a picture."""
        self._processed = lru_cache(maxsize=_CACHED)(self._process)

    def __call__(self, text: Text) -> tuple[Text, Extras]:
        """The turns with what stands for each picture, and what the model is shown beside them."""
        if isinstance(text, str) or not (sources := pictures(text)):
            return text, {}
        processed = [self._processed(source) for source in sources]
        places = iter([each.place for each in processed])
        return tuple(_read(turn, places) for turn in text), self._extras(sources, processed)

    def positions(self, prompt: Sequence[int], extras: Extras) -> Extras:
        """The extras, with where a prompt's tokens are, of models that count a picture's rows and columns.
        A picture's token is as far in time as what stands before it; what follows goes on behind its longer
        side (M-RoPE; Wang et al. 2024, arXiv:2409.12191)."""
        if not self.counts_rows or "image_grid_thw" not in extras:
            return extras
        merged = int(self.config["vision_config"].get("spatial_merge_size", 2))
        grids = iter(extras["image_grid_thw"].value.tolist())
        token, places, n, at = self.token, list[list[int]](), 0, 0
        while n < len(prompt):
            if prompt[n] != token:
                places, n, at = [*places, [at] * 3], n + 1, at + 1
                continue
            times, rows, columns = next(grids, (0, 0, 0))
            rows, columns = rows // merged, columns // merged
            places += [
                [at, at + r, at + c] for _ in range(times) for r in range(rows) for c in range(columns)
            ]
            n, at = n + times * rows * columns, at + max(rows, columns)
        if len(places) != len(prompt) or next(grids, None) is not None:
            raise UserError(
                f"{self.family} models are shown pictures in prompts alone; move later turns there"
            )
        return {**extras, POSITIONS: Extra(value=torch.tensor(places), axis="item")}

    def _extras(self, sources: Sequence[str], processed: Sequence[Processed]) -> Extras:
        # By pixels: two names of one picture are one prompt.
        names, ids = (
            dict.fromkeys(name for each in processed for name in each.tensors),
            map(picture_id, sources),
        )
        id, within_row = digest(self._digest, *ids), self.family in _WITHIN_ROW
        extras: dict[str, Extra] = {}
        for name in names:

            def read(name: str = name) -> Tensor:
                return joined([self._processed(source).tensors[name] for source in sources])

            extras[name] = LazyExtra(read, digest(id, name), pad=0, within_row=within_row)
        return extras

    @cached_property
    def processor(self) -> Any:
        """The processor of the folder; where that needs torchvision for films, its part for pictures."""
        from transformers import AutoImageProcessor, AutoProcessor

        for_films = self.counts_rows or (self.folder / "video_preprocessor_config.json").is_file()
        kind: Any = AutoImageProcessor if for_films and find_spec("torchvision") is None else AutoProcessor
        with loading(self.folder, "the processor of its pictures cannot be loaded"):
            return kind.from_pretrained(self.folder, trust_remote_code=False, local_files_only=True)

    @cached_property
    def _digest(self) -> str:
        of_pictures = getattr(self.processor, "image_processor", self.processor)
        return digest(self.family, str(of_pictures.to_json_string()))

    def _process(self, source: str) -> Processed:
        picture, whole = open_picture(source), hasattr(self.processor, "image_processor")
        try:
            with quiet_library():
                words = {"text": self.mark} if whole else {}
                made = self.processor(images=[picture], return_tensors="pt", **words)
        except LOADING_FAULTS as error:
            raise UserError(
                f"the processor of {self.folder} refuses a picture: {first_lines(error)}"
            ) from error
        ids = made["input_ids"][0].tolist() if whole else [self.token] * self._features(made)
        ids = ids[1:] if self.info.bos is not None and ids[:1] == [self.info.bos] else ids
        ids = ids[:-1] if self.info.eos is not None and ids[-1:] == [self.info.eos] else ids
        tensors = {name: value for name, value in made.items() if name not in _OF_TOKENS}
        if self.family in _WITHIN_ROW:
            tensors = {name: value[0] for name, value in tensors.items()}
        return Processed(self.info.decode(ids), tensors)

    def _features(self, made: Mapping[str, Tensor]) -> int:
        if "image_grid_thw" not in made:
            raise UserError(f"{self.folder}: its processor needs torchvision: pip install torchvision")
        return int(made["image_grid_thw"].prod()) // int(self.processor.merge_size) ** 2


def _with_place(part: Part, places: Iterator[str]) -> Part:
    return replace(part, text=next(places)) if part.kind == "image" else part


def _read(turn: Message, places: Iterator[str]) -> Message:
    if isinstance(turn.content, str):
        return turn
    parts = tuple(_with_place(part, places) for part in turn.content)
    if turn.role == "assistant" and any(part.kind == "image" for part in parts):
        raise UserError("a turn of the assistant holds a picture, and language models answer in words")
    return replace(turn, content=parts)


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """Items of several pictures one behind the other, each filled up with zeros to the largest shape."""
    largest = [max(sizes) for sizes in zip(*(tensor.shape[1:] for tensor in tensors), strict=True)]
    if all(list(tensor.shape[1:]) == largest for tensor in tensors):
        return torch.cat(list(tensors))
    filled = [tensor.new_zeros(len(tensor), *largest) for tensor in tensors]
    for whole, tensor in zip(filled, tensors, strict=True):
        whole[(slice(None), *map(slice, tensor.shape[1:]))] = tensor
    return torch.cat(filled)
