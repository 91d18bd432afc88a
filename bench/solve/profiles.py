"""Fits the profiles that Penstock ships (balancer/profile/shipped.json) to published load points.

    python3 profiles.py curves.csv > ../../balancer/profile/shipped.json

curves.csv has one measured load point a row, with the columns model, gpu, tp, isl, osl, concurrency_or_rps,
ttft_ms_mean, ttft_ms_p50, tpot_ms_mean, tpot_ms_p50, throughput_tok_s, curve. A point says how long a step took:
time per output token = step + n per_seq + p per_token, with n = requests/s x output x time per token sequences in
it and p = requests/s x prompt x time per token prompt tokens; and, where the first token came about as fast as at the
lowest load of its curve, how long that took: 1.5 (step + n per_seq) + prompt x per_token. The three are the
non-negative least squares of relative errors. Where prefixes were cached and nobody says how much, prompts are left
out: their share is in per_seq, and per_token is the shipped default of 0.005 step.
"""
import csv
import json
import statistics
import sys

import numpy as np
from scipy.optimize import nnls

MIT, APACHE = "MIT", "Apache-2.0"
DC = ("datacrunch-research/h200-benchmarks c091ef530a525d2e788bc41c39a4450b09c9f2ad", MIT)
LSS = ("casys-kaist/LLMServingSim 5daddb21a545658d5150b535712d0494584b5278, one-second samples", MIT)
INFX = ("SemiAnalysisAI/InferenceX experimental/token_position_decode_slo, through a fork at 96e2b00643dd1670c1931dc8df009f33a5eca9af", APACHE)
AGENTX = ("ajith-sirra-amd/InferenceMAX_Rocm_Team 96e2b00643dd1670c1931dc8df009f33a5eca9af, history, results/06*: unofficial runs of coding-agent sessions, not InferenceX results", APACHE)
NIM = ("docs.nvidia.com NIM benchmarking 1.8.0, figures only", "facts of NVIDIA documentation")

# name, prefixes of curves, model, gpu, gpus, source, prompts known
PROFILES = [
    ("llama-3.3-70b/h200x4", ["dc_llama_3_3_70b"], "Llama-3.3-70B-Instruct", "H200", 4, DC, True),
    ("llama-3.1-405b-fp8/h200x8", ["dc_llama_405b"], "Llama-3.1-405B-Instruct-FP8", "H200", 8, DC, True),
    ("llama-3.3-70b-fp8/h100x2", ["nim_llama33_70b_v1.8.0"], "Llama-3.3-70B-Instruct", "H100", 2, NIM, True),
    ("llama-3.1-8b/rtx4090", ["lss_rtx4090"], "Llama-3.1-8B", "RTX 4090", 1, LSS, True),
    ("llama-3.1-8b/rtxpro6000", ["lss_rtxpro6000_llama"], "Llama-3.1-8B", "RTX PRO 6000", 1, LSS, True),
    ("qwen3-32b/rtxpro6000x2", ["lss_rtxpro6000_qwen3-32b"], "Qwen3-32B", "RTX PRO 6000", 2, LSS, True),
    ("qwen3-30b-a3b/rtxpro6000", ["lss_rtxpro6000_qwen3-30b"], "Qwen3-30B-A3B", "RTX PRO 6000", 1, LSS, True),
    ("minimax-m2.5/h200x8", ["infx_minimax_m25_vllm_tep8"], "MiniMax-M2.5", "H200", 8, INFX, True),
    ("qwen3.5-397b-a17b/h200x8", ["infx_qwen35"], "Qwen3.5-397B-A17B", "H200", 8, INFX, True),
    ("kimi-k2.5-fp4/b200x8", ["agentx_kimik2.5_b200_tp8"], "Kimi-K2.5", "B200", 8, AGENTX, False),
    ("kimi-k2.5-fp4/mi355x4", ["agentx_kimik2.5_mi355x_tp4"], "Kimi-K2.5", "MI355X", 4, AGENTX, False),
    ("qwen3.5-397b-a17b-fp8/mi355x4", ["agentx_qwen3.5_mi355x_tp4"], "Qwen3.5-397B-A17B", "MI355X", 4, AGENTX, False),
    ("minimax-m2.5-fp4/mi355x1", ["agentx_minimaxm2.5_mi355x_tp1_fp4"], "MiniMax-M2.5", "MI355X", 1, AGENTX, False),
    ("minimax-m2.5-fp8/mi355x1", ["agentx_minimaxm2.5_mi355x_tp1_fp8"], "MiniMax-M2.5", "MI355X", 1, AGENTX, False),
    ("minimax-m2.5-fp8/mi355x2", ["agentx_minimaxm2.5_mi355x_tp2_fp8"], "MiniMax-M2.5", "MI355X", 2, AGENTX, False),
    ("glm-5.1-fp4/mi355x2", ["agentx_glm5.1_mi355x_tp2"], "GLM-5.1", "MI355X", 2, AGENTX, False),
]


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


def either(row, name):
    return number(row[name + "_mean"]) or number(row[name + "_p50"])


def fit(rows, prompts):
    lowest = {}
    for r in rows:
        ttft = either(r, "ttft_ms")
        if ttft:
            lowest[r["curve"]] = min(ttft, lowest.get(r["curve"], ttft))
    steps, firsts, loads = [], [], []
    for r in rows:
        tbot, rate, isl, osl, ttft = either(r, "tpot_ms"), number(r["throughput_tok_s"]), number(r["isl"]), number(r["osl"]), either(r, "ttft_ms")
        if not (tbot and rate and isl and osl):
            continue
        per_ms = rate / osl / 1000
        n = per_ms * (osl - 1) * tbot
        if not prompts and ttft and ttft > 10 * lowest[r["curve"]]:
            continue  # past saturation
        loads.append(n)
        steps.append(([1, n, per_ms * isl * tbot], tbot))
        if prompts and ttft and ttft < 1.5 * lowest[r["curve"]]:
            firsts.append(([1.5, 1.5 * n, isl], ttft))
    columns = 3 if prompts else 2
    matrix = [[v / t for v in x[:columns]] for x, t in steps] + [[v / t * 0.5 for v in x[:columns]] for x, t in firsts]
    want = [1] * len(steps) + [0.5] * len(firsts)
    x, _ = nnls(np.array(matrix), np.array(want))
    x = list(x) + [0.005 * x[0]] * (3 - columns)
    off = [abs(sum(a * b for a, b in zip(row[:columns], x)) / t - 1) for row, t in steps]
    return x, statistics.mean(off), len(steps), max(loads)


def main():
    with open(sys.argv[1], newline="") as f:
        rows = list(csv.DictReader(f))
    out = []
    for name, prefixes, model, gpu, gpus, (source, licence), prompts in PROFILES:
        mine = [r for r in rows if r["curve"].startswith(tuple(prefixes))]
        x, mape, points, most = fit(mine, prompts)
        print(f"{name:32} {points:3} points, step {x[0]:7.3f} per_seq {x[1]:7.4f} per_token {x[2]:.5f}, off by {100 * mape:.1f} %", file=sys.stderr)
        out.append({
            "name": name, "model": model, "gpu": gpu, "gpus": gpus, "step_ms": round(x[0], 3), "per_seq_ms": round(x[1], 4), "per_token_ms": round(x[2], 5),
            "points": points, "mape": round(mape, 3), "most_sequences": round(most), "prompts": prompts, "source": source, "licence": licence,
        })
    print("[\n" + ",\n".join(json.dumps(p) for p in out) + "\n]")


if __name__ == "__main__":
    main()
