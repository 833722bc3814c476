#!/bin/bash
#SBATCH --job=short --nodes=2 --cpus-per-t=3
#SBATCH --part=debug
