#!/bin/bash
#SBATCH -G 16
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-gpu=12
#SBATCH --mem-per-gpu=100G
