"""Run a training function on two nodes by the unmodified Kubeflow SDK, and read its results."""

from kubeflow.trainer import CustomTrainer, TrainerClient


def train_pytorch() -> None:
    """Train a small network on digits with DistributedDataParallel."""
    import os  # noqa: PLC0415 -- the function's text alone goes to the nodes

    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415
    from sklearn.datasets import load_digits  # noqa: PLC0415
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset  # noqa: PLC0415

    device, backend = ("cuda", "nccl") if torch.cuda.is_available() else ("cpu", "gloo")
    dist.init_process_group(backend=backend)
    if device == "cuda":
        device = f"cuda:{os.getenv('LOCAL_RANK', '0')}"
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(1024, 10)).to(device)
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, labels = load_digits(return_X_y=True)
    inputs = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    dataset = TensorDataset(inputs, torch.tensor(labels))
    loader = DataLoader(dataset, batch_size=100, sampler=DistributedSampler(dataset))
    for epoch in range(3):
        for at, (batch, wanted) in enumerate(loader):
            loss = torch.nn.functional.cross_entropy(model(batch.to(device)), wanted.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if at == 0 and dist.get_rank() == 0:
                print(f"Epoch {epoch} [{len(dataset)} digits] Loss: {loss.item():.4f}")
    dist.barrier()
    dist.destroy_process_group()


client = TrainerClient()
job_id = client.train(
    trainer=CustomTrainer(
        func=train_pytorch, num_nodes=2, resources_per_node={"cpu": 3, "memory": "3Gi"}
    ),
    runtime=client.get_runtime("torch-distributed"),
)
for job in client.list_jobs():
    print(f"TrainJob: {job.name}, Status: {job.status}")
for step in client.wait_for_job_status(job_id, status={"Running", "Complete"}).steps:
    print(f"Step: {step.name}, Status: {step.status}, Devices: {step.device} x {step.device_count}")
client.wait_for_job_status(job_id)
print(*client.get_job_logs(job_id, step="node-0"), sep="\n")
print(f"TrainJob: {job_id}, Status: {client.get_job(job_id).status}")
