"""What a vLLM server loads of plaudit: weights from files, by vLLM's own protocol of weight transfer.

It runs in the server's Python, beside vLLM, torch and safetensors; nothing else of plaudit is imported there.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from plaudit.serving.weight_files import HeldWeights


def register() -> None:
    """Give vLLM the carrier ``files``: called by vLLM, for every process of a server."""
    base: Any = import_module("vllm.distributed.weight_transfer.base")
    factory: Any = import_module("vllm.distributed.weight_transfer.factory").WeightTransferEngineFactory
    reload: Any = import_module("vllm.model_executor.model_loader.reload")

    @dataclass
    class FilesInit(base.WeightTransferInitInfo):
        pass

    @dataclass
    class FilesUpdate(base.WeightTransferUpdateInfo):
        path: str
        root: str

    class FilesEngine(base.WeightTransferEngine):
        """Reads a file of weights, and loads all of it into the model."""

        init_info_cls = FilesInit
        update_info_cls = FilesUpdate

        def init_transfer_engine(self, init_info: FilesInit) -> None:
            self._held = HeldWeights()

        def start_weight_update(self) -> None:
            reload.initialize_layerwise_reload(self.model)

        def receive_weights(self, update_info: FilesUpdate) -> None:
            tensors = self._held.read(update_info.path, update_info.root)
            # A tied head comes by its own name: without it, vLLM's protocol leaves it what it was.
            self.model.load_weights(iter(tensors.items()))

        def finish_weight_update(self) -> None:
            reload.finalize_layerwise_reload(self.model, self.model_config)

        def shutdown(self) -> None:
            self._held = HeldWeights()

    if "files" not in factory._registry:
        factory.register_engine("files", FilesEngine)
