#!/bin/bash
#SBATCH --gres=gpu:a100:4
#SBATCH --time=90:30
python train.py
