"""Pictures from files, bytes and data URLs, upright and in RGB, or a sentence about what is wrong with them.

A picture is known by its pixels: the same one under two names, or in two formats without loss, is one.
"""

import base64
import binascii
import re
import warnings
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from plaudit.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
"""What is read: pictures of pixels, by decoders that many eyes have looked at."""
MOST_PIXELS = 50_000_000
MOST_BYTES = 50_000_000
_LARGE = 1_000_000
"""Bytes above which a picture that is drawn anew loses some of its detail."""
_DATA = "data:image/"
_BEGINS = {"jpeg": b"\xff\xd8", "gif": b"GIF8", "webp": b"RIFF", "bmp": b"BM", "tiff": (b"II*\0", b"MM\0*")}
_PART = re.compile(r"#xywh=percent:([\d.]+),([\d.]+),([\d.]+),([\d.]+)$")
_MODES = frozenset(["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX"])


def pillow() -> Any:
    """Pillow's module of pictures."""
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise UserError('pictures need Pillow: pip install "plaudit[pictures]"') from error
    return Image


def data_url(content: bytes) -> str:
    """A picture's bytes as text that a row can hold.

    >>> data_url(b"GIF89a")
    'data:image/gif;base64,R0lGODlh'
    """
    kind = next((name for name, begins in _BEGINS.items() if content.startswith(begins)), "png")
    return f"{_DATA}{kind};base64,{base64.b64encode(content).decode('ascii')}"


@lru_cache(maxsize=256)
def redrawn_url(source: str, longest: int) -> str:
    """A picture as a data URL of its pixels alone, its longer side at most so long."""
    picture, content = open_picture(source), BytesIO()
    picture.thumbnail((longest, longest))
    # Pillow would write comments and profiles of the file along.
    picture.info = {}
    picture.save(content, format="PNG")
    if len(content.getvalue()) > _LARGE:
        content = BytesIO()
        picture.save(content, format="JPEG", quality=90)
    return data_url(content.getvalue())


def picture_text(value: Any) -> str | None:
    """A picture of Pillow, bytes, or what ``datasets`` keeps of one, as a row names it; None of all else."""
    if isinstance(value, bytes):
        return data_url(value)
    if isinstance(value, dict):
        is_stored = value.keys() == {"bytes", "path"}
        return _stored_text(value["bytes"], value["path"]) if is_stored else None
    if hasattr(value, "getexif") and hasattr(value, "save"):
        content = BytesIO()
        value.save(content, format="PNG" if value.mode in _MODES else "TIFF")
        return data_url(content.getvalue())
    return None


def _stored_text(content: bytes | None, path: str | None) -> str | None:
    return path if content is None else data_url(content)


def resolved(source: str, folder: Path) -> str:
    """Where a picture is that a row of this folder names; data URLs and pictures of the web stay."""
    if source.startswith("file:"):
        return url2pathname(unquote(urlsplit(source).path))
    is_address = source.startswith(("data:", "http://", "https://"))
    return source if is_address else str((folder / source).absolute())


def part_of(source: str, share: float, key: str) -> str:
    """A square part of so large a share of a picture, at a place that the key decides.

    >>> part_of("owl.png", 0.04, "")
    'owl.png#xywh=percent:32.38,50.23,20.00,20.00'
    """
    side = share**0.5
    numbers = blake2b(f"{key}/{source}".encode(), digest_size=8).digest()
    x, y = (int.from_bytes(half, "big") / 2**32 * (1 - side) for half in (numbers[:4], numbers[4:]))
    return f"{source}#xywh=percent:{100 * x:.2f},{100 * y:.2f},{100 * side:.2f},{100 * side:.2f}"


def open_picture(source: str) -> "Image":
    """The picture at a path or in a data URL, or a part of it, upright and in RGB, transparency on white."""
    if part := _PART.search(source):
        whole = open_picture(source[: part.start()])
        x, y, width, height = (float(number) / 100 for number in part.groups())
        left, top = int(x * whole.width), int(y * whole.height)
        right, bottom = left + max(1, int(width * whole.width)), top + max(1, int(height * whole.height))
        return whole.crop((left, top, min(right, whole.width), min(bottom, whole.height)))
    named = source if len(source) < 200 else f"{source[:40]}…"
    content = _bytes_of(source, named)
    library = pillow()
    with warnings.catch_warnings():
        # Its warning of a bomb comes at other sizes than ours.
        warnings.simplefilter("ignore")
        try:
            picture = library.open(BytesIO(content), formats=FORMATS)
            _refuse_unfit(picture, named)
            picture.load()
            return _upright_rgb(picture)
        except UserError:
            raise
        # What decoders raise at damaged bytes: struct errors, zlib's, sizes that fit no memory.
        except (
            OSError,
            ValueError,
            SyntaxError,
            LookupError,
            TypeError,
            ArithmeticError,
            MemoryError,
        ) as error:
            why = str(error).replace("<_io.BytesIO object at ", "").split(" 0x")[0] or type(error).__name__
            raise UserError(
                f"the picture {named} is damaged, or none of {', '.join(FORMATS)} ({why})"
            ) from error
        except library.DecompressionBombError as error:
            raise UserError(f"the picture {named} unpacks to far more than it says: {error}") from error


def _bytes_of(source: str, named: str) -> bytes:
    if source.startswith("data:"):
        head, _, body = source.partition(",")
        if not head.startswith(_DATA) or not head.endswith(";base64"):
            raise UserError(f"the picture {named} should be data:image/…;base64,…")
        try:
            return base64.b64decode(body, validate=True)
        except binascii.Error as error:
            raise UserError(f"the picture {named} is no base64 ({error})") from error
    if source.startswith(("http://", "https://")):
        raise UserError(f"the picture {named} lies on the web, and training reads files: download it first")
    path = Path(source)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UserError(f"the picture {named} has more than {MOST_BYTES / 1e6:.0f} MB; make it smaller")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise UserError(f"the picture {named} cannot be read: {getattr(error, 'strerror', error)}") from error


def _refuse_unfit(picture: "Image", named: str) -> None:
    width, height = picture.size
    if width * height > MOST_PIXELS:
        raise UserError(
            f"the picture {named} has {width} × {height} pixels, more than {MOST_PIXELS / 1e6:.0f} million; "
            "make it smaller"
        )
    if (frames := getattr(picture, "n_frames", 1)) > 1:
        raise UserError(f"the picture {named} moves ({frames} frames); give the frame that is meant")
    if picture.mode not in _MODES:
        raise UserError(f"the picture {named} is in {picture.mode}; save it in RGB or in greys of 8 bits")


def _upright_rgb(picture: "Image") -> "Image":
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(picture)
    if upright.mode in ("LA", "PA", "RGBA") or "transparency" in upright.info:
        clear = upright.convert("RGBA")
        upright = pillow().new("RGBA", clear.size, "white")
        upright.alpha_composite(clear)
    return upright.convert("RGB")


@dataclass(frozen=True, slots=True)
class PictureFacts:
    """What is said of a picture where it cannot be shown."""

    id: str
    """The hash of its pixels and shape; of one that cannot be opened, of its name."""
    size: tuple[int, int] | None
    fault: str | None = None


@lru_cache(maxsize=10_000)
def picture_facts(source: str) -> PictureFacts:
    """What a picture is: the same facts for every name of the same pixels."""
    try:
        picture = open_picture(source)
    except UserError as error:
        return PictureFacts(blake2b(source.encode(), digest_size=16).hexdigest(), None, str(error))
    return PictureFacts(pixels_id(picture), picture.size)


def pixels_id(picture: "Image") -> str:
    """The hash of an opened picture's pixels and shape."""
    return blake2b(repr(picture.size).encode() + picture.tobytes(), digest_size=16).hexdigest()


def picture_id(source: str) -> str:
    """The hash of a picture's pixels and shape; of one that cannot be opened, of its name."""
    return picture_facts(source).id
