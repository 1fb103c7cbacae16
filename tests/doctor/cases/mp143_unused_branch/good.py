"""The second head is stepped in every iteration, and used in every third."""
import torch
from torch import nn

torch.manual_seed(0)
trunk, main, side = nn.Linear(8, 20), nn.Linear(20, 3), nn.Linear(20, 1)
main_opt = torch.optim.Adam([*trunk.parameters(), *main.parameters()], lr=1e-3)
side_opt = torch.optim.Adam(side.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)


def losses(x, with_side):
    with torch.autocast("cpu", dtype=torch.float16):
        h = trunk(x).relu()
        loss = nn.functional.cross_entropy(main(h), x[:, :3].argmax(1))
        if with_side:
            loss = loss + nn.functional.mse_loss(side(h.detach()), x.sum(1, keepdim=True))
    return loss


for n in range(20):
    x = torch.randn(14, 8)
    main_opt.zero_grad()
    side_opt.zero_grad()
    scaler.scale(losses(x, n % 3 == 0)).backward()
    scaler.step(main_opt)
    if n % 3 == 0:
        scaler.step(side_opt)
    scaler.update()
    print(n)
