#!/bin/bash
#SBATCH --job-name="my long name"
#SBATCH --comment='it # stays'
#SBATCH --output=a\ b.out
