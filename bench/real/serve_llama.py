"""llama.cpp's own HTTP server as built into the xllamacpp wheel, with the flags of llama-server that the suite uses.

It stands in for the llama-server binary on CPUs that the binary was not built for. SIGTERM shuts the server down as
llama-server does: the listener closes at once, running streams get no more tokens, then their connection ends.
"""

import argparse
import signal

# Blocked before the server starts its threads, which inherit the mask: only sigwait below sees them.
STOP = [signal.SIGTERM, signal.SIGINT]
signal.pthread_sigmask(signal.SIG_BLOCK, STOP)

import xllamacpp  # noqa: E402


def main() -> None:
    flags = argparse.ArgumentParser()
    flags.add_argument("--model", required=True)
    flags.add_argument("--alias", required=True)
    flags.add_argument("--port", type=int, required=True)
    flags.add_argument("--parallel", type=int, required=True)
    flags.add_argument("--context", type=int, required=True)
    flags.add_argument("--template", help="a file with a chat template, in place of the model's own")
    flags.add_argument("--embeds", action="store_true", help="embeddings and nothing else")
    args = flags.parse_args()

    params = xllamacpp.CommonParams()
    params.model.path = args.model
    params.model_alias = {args.alias}
    params.hostnames = ["127.0.0.1"]
    params.port = args.port
    params.n_parallel = args.parallel
    params.n_ctx = args.context
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.sse_ping_interval = 1
    params.ui = False
    if args.template:
        with open(args.template) as template:
            params.chat_template, params.use_jinja = template.read(), True
    if args.embeds:
        params.embedding, params.pooling_type = True, xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    server = xllamacpp.Server(params)
    signal.sigwait(STOP)
    del server


if __name__ == "__main__":
    main()
