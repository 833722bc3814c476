#!/bin/bash
#SBATCH --array=0-31%4
#SBATCH --output=out/%A_%a.txt
echo $SLURM_ARRAY_TASK_ID
