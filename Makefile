# Thin on purpose: every target is one line over `invoke` or a script. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
INVOKE := .venv/bin/invoke
UV := .venv/bin/uv

.PHONY: help
help: ## Print this list
	@grep -hE '^[a-z_-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 30

.PHONY: setup
setup: ## Make .venv and install what is missing
	@scripts/bootstrap.sh

.PHONY: demo
demo: ## A whole release on this machine: sandbox, image, four clusters, a job, logs
	@scripts/demo.sh

.PHONY: test
test: ## Lint, types and all tests; installs what is missing
	@scripts/bootstrap.sh --tests
	@scripts/ci/check.sh

.PHONY: test-deep
test-deep: ## The same with every case of each series: an hour
	@scripts/bootstrap.sh --tests
	@TESTS=deep scripts/ci/check.sh

.PHONY: lint
lint: setup ## Lint and types only
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy

.PHONY: lock
lock: setup ## Renew requirements.lock and the locks of docker/
	@scripts/lock.sh

.PHONY: readme
readme: setup ## Renew the table of tasks in README.md
	@.venv/bin/python scripts/readme_tasks.py

.PHONY: bench-list
bench-list: setup ## CPU time of `invoke --list` against an empty tasks.py
	@.venv/bin/python scripts/bench/list.py

.PHONY: bench-publish
bench-publish: setup ## Publishing to four registries against docker and skopeo: 20 minutes
	@.venv/bin/python scripts/bench/publish.py --json

.PHONY: bench-jobs
bench-jobs: setup ## A hundred jobs over the loss of a head against Ray's own CLI and SDK: six minutes
	@.venv/bin/python scripts/bench/jobs.py --json

.PHONY: bench-rollout
bench-rollout: setup ## Staged restarts against Ray's own launcher, and a thousand clusters: twelve minutes
	@.venv/bin/python scripts/bench/rollout.py --json

.PHONY: bench-logs
bench-logs: setup ## Logs of 8 heads and 40 connections against pssh, pdsh, clush, pyinfra and others: seven minutes
	@.venv/bin/python scripts/bench/logs.py --json

.PHONY: clean
clean: ## Remove caches and .venv; the sandbox and its state stay
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info

# The names that the team's Makefile had.
.PHONY: cluster_docker
cluster_docker: setup ## invoke cluster-docker
	@$(INVOKE) cluster-docker

.PHONY: configure_gcp_registry_all
configure_gcp_registry_all: setup ## invoke registry.cleanup
	@$(INVOKE) registry.cleanup

.PHONY: init_ray_auth_token_secret
init_ray_auth_token_secret: setup ## invoke auth.init --all
	@$(INVOKE) auth.init --all

.PHONY: get_ray_auth_token
get_ray_auth_token: setup ## invoke auth.fetch
	@$(INVOKE) auth.fetch

.PHONY: get_ray_auth_token_staging
get_ray_auth_token_staging: setup ## invoke auth.fetch --cluster '*staging*'
	@$(INVOKE) auth.fetch --cluster '*staging*'

.PHONY: get_secret_key
get_secret_key: setup ## invoke auth.keys
	@$(INVOKE) auth.keys

.PHONY: update_configs
update_configs: setup ## invoke update-configs
	@$(INVOKE) update-configs
