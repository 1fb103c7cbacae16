"""An encoder and a decoder are trained with an optimizer each."""
import torch
from torch import nn

torch.manual_seed(0)
encode = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))
decode = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 20))
opt_e = torch.optim.Adam(encode.parameters(), lr=2e-3)
opt_d = torch.optim.Adam(decode.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**11)
for _ in range(50):
    x = torch.randn(32, 20)
    for opt in (opt_e, opt_d):
        opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        out = decode(encode(x))
    loss = nn.functional.mse_loss(out.float(), x)
    scaler.scale(loss).backward()
    for opt in (opt_e, opt_d):
        scaler.unscale_(opt)
    nn.utils.clip_grad_norm_([*encode.parameters(), *decode.parameters()], 1.0)
    scaler.step(opt_e)
    scaler.step(opt_d)
    scaler.update()
print(loss.item(), scaler.get_scale())
