"""``plaudit serve``: a server that draws answers for a run elsewhere, and takes its weights."""

import argparse
import os
from pathlib import Path
from typing import Any

from plaudit.errors import UserError
from plaudit.files import hub

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "serve",
        help="draw answers for a run in another process, or for whoever chats with it",
        description=(
            "Draws answers for a run that is told --sampler http://HOST:PORT, with the weights that the run "
            "sends; plaudit's own sampler, where there is no vLLM. OpenAI's clients talk to it at "
            "/v1/chat/completions, with pictures where the model sees. It answers one question at a time."
        ),
    )
    parser.add_argument("--model", required=True, help="the folder that the run starts from, or a hub name")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="the port (default: %(default)s; 0: any)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:1 (default: %(default)s)")
    parser.add_argument("--dtype", default="auto", help="what is computed in (default: %(default)s)")
    parser.add_argument(
        "--token-from", help="the environment variable with the token that every request must bring"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal ends it."""
    token = None
    if arguments.token_from is not None:
        token = os.environ.get(arguments.token_from, "").strip() or None
        if token is None:
            raise UserError(f"--token-from {arguments.token_from}: this variable holds no token")
    elif arguments.host not in LOOPBACK:
        raise UserError(
            f"--host {arguments.host}: whoever reaches it could give the model other weights; add "
            "--token-from VARIABLE, or listen at 127.0.0.1"
        )
    # Here and not above: `plaudit --help` does not wait for torch.
    from plaudit.serving.local_server import SamplingModel, http_server

    folder = Path(hub.local_path(arguments.model, "model"))
    model = SamplingModel(folder, device=arguments.device, dtype=arguments.dtype)
    with http_server(model, arguments.host, arguments.port, token) as server:
        print(f"http://{arguments.host}:{server.server_address[1]} draws answers of {folder}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("ended")
    return 0
