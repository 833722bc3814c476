#!/bin/bash
#SBATCH --export=ALL,NCCL_DEBUG=INFO,LR=1e-3
#SBATCH --spread-job
