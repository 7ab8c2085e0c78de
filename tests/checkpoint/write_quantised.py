"""Quantises the linear layers of safetensors FROM, but for the head, to nf4 with double quantisation by the real bitsandbytes. Writes TO."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from real_bitsandbytes import F  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

NO_LINEAR_LAYERS = ("embed_action.", "embed_coordinate.", "pred_action.")

given, made = load_file(sys.argv[1]), {}
for name, tensor in given.items():
    if tensor.dim() != 2 or name.startswith(NO_LINEAR_LAYERS):
        made[name] = tensor
    else:
        made[name], state = F.quantize_4bit(tensor, quant_type="nf4", compress_statistics=True)
        for key, value in state.as_dict(packed=True).items():
            made[f"{name}.{key}"] = value
save_file({name: tensor.contiguous().clone() for name, tensor in made.items()}, sys.argv[2])
