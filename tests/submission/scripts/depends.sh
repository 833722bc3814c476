#!/bin/bash
#SBATCH --dependency=afterok:123:124,afterany:200
#SBATCH -J post
